"""The dashboard's URLs: ``path("leasework/", include("leasework.integrations.django.urls"))``."""

from django.urls import re_path

from leasework.integrations.django.views import page

app_name = "leasework"
urlpatterns = [re_path(r"^(?P<path>.*)$", page, name="dashboard")]
