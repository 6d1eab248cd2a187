"""An entry in the admin's index that leads to the dashboard."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse

from leasehold.integrations.django.models import Job


def _dashboard() -> str:
    try:
        return str(reverse("leasehold:dashboard", kwargs={"path": "jobs"}))
    except NoReverseMatch:  # the project has not mounted it
        return ""


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):  # type: ignore[misc]
    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(_dashboard()) and request.user.is_staff

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    has_change_permission = has_delete_permission = lambda self, request, obj=None: False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        return HttpResponseRedirect(_dashboard())
