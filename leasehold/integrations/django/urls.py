"""The dashboard's URLs: ``path("leasehold/", include("leasehold.integrations.django.urls"))``."""

from django.urls import re_path

from leasehold.integrations.django.views import page

app_name = "leasehold"
urlpatterns = [re_path(r"^(?P<path>.*)$", page, name="dashboard")]
