"""Entries in the admin's index that lead to the dashboard's pages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse

from leasework.integrations.django.models import Job, Schedule


class Entry(admin.ModelAdmin):  # type: ignore[misc]
    """Leads to the page of its model: ``jobs``, ``schedules``."""

    def page(self) -> str:
        path = f"{self.model._meta.model_name}s"
        try:
            return str(reverse("leasework:dashboard", kwargs={"path": path}))
        except NoReverseMatch:  # the project has not mounted it
            return ""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(self.page()) and request.user.is_staff

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    has_change_permission = has_delete_permission = lambda self, request, obj=None: False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        return HttpResponseRedirect(self.page())


admin.site.register([Job, Schedule], Entry)
