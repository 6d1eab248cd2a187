from django.contrib import admin
from django.urls import include, path

from shop import views

urlpatterns = [
    path("", views.latest),
    path("orders/", views.order),
    path("admin/", admin.site.urls),
    path("leasework/", include("leasework.integrations.django.urls")),
]
