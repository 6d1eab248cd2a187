workers = 4
worker_class = "uvicorn_worker.UvicornWorker"
