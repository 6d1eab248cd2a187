from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from leasework.integrations.django import app
from shop.models import Order, Report
from shop.tasks import send_receipt


@csrf_exempt  # for curl, which has no session
@require_POST
def order(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():  # the order and its receipt are committed together, or neither is
        made = Order.objects.create(email=request.POST["email"])
        app.sync.enqueue(send_receipt.job(order_id=made.id))
        if made.email.endswith("@example.com"):
            raise ValueError("nobody there buys anything")
    return JsonResponse({"order": made.id})


def latest(request: HttpRequest) -> JsonResponse:
    reports = Report.objects.order_by("-due")[:5]
    waiting = Order.objects.filter(receipt_sent_at=None).count()
    return JsonResponse({"reports": list(reports.values()), "without_receipt": waiting})
