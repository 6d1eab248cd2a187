import importlib.util
import json
import os

SECRET_KEY = "only for tests, and long enough for them"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "tests.e2e.apps.shop.urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "leasework.integrations.django",
    "tests.e2e.apps.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": os.environ.get("SHOP_ENGINE", "django.db.backends.postgresql"),
        "NAME": os.environ.get("PGDATABASE", "shop"),
        "CONN_MAX_AGE": None if os.environ.get("SHOP_KEEPS_CONNECTIONS") else 0,
    }
}
LEASEWORK = json.loads(os.environ.get("SHOP_LEASEWORK", '{"RECOVER_WITHIN": 9}'))
HAS_TASKS = importlib.util.find_spec("django.tasks") is not None
TASKS = {
    "default": {
        "BACKEND": "leasework.integrations.django.backend.LeaseworkBackend",
        "QUEUES": ["default", "mail", "bulk"],
        "OPTIONS": {"max_attempts": int(os.environ.get("SHOP_ATTEMPTS", 2))},
    },
    "free": {
        "BACKEND": "leasework.integrations.django.backend.LeaseworkBackend",
        "QUEUES": [],
        "OPTIONS": {"max_attempts": 7},
    },
    "unused by any task": {
        "BACKEND": "leasework.integrations.django.backend.LeaseworkBackend",
        "QUEUES": ["later"],
    },
}
