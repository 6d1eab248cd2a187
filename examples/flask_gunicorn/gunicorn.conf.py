from leasework.integrations.gunicorn import node

workers = 4
threads = 4
# each worker runs schedules and jobs, in a thread beside its requests
post_worker_init, worker_exit = node("service:app")
