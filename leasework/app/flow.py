"""How an application's code defines the flow of its jobs: queues and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from leasework.app.home import Home
from leasework.config import check_text
from leasework.errors import ConfigError, suggest
from leasework.model.limits import FromArguments, Limit, Rate, check_source
from leasework.model.moments import is_number

Claim = Literal["rows", "advisory"]
"""How workers claim the jobs of a queue: see :meth:`App.queue`."""


class FlowDefinitions(Home):
    """The part of an App that defines queues and limits."""

    def queue(
        self,
        name: str,
        *,
        claim: Claim = "rows",
        fair: FromArguments | None = None,
        weight: Mapping[str, float] | None = None,
    ) -> None:
        """Choose how this application's workers claim the jobs of a queue::

            app.queue("mail", claim="advisory")
            app.queue("imports", fair="tenant_id", weight={"gold": 3})

        - ``claim``: ``rows`` (the default) locks rows and skips those that are locked.
          ``advisory`` selects candidates, tries an advisory lock for each, and checks the job
          again. Workers with different claims can share a queue. Jobs with limits are always
          claimed by rows.
        - ``fair``: an argument's name, or a function of the arguments by name, that tells a job's
          tenant. While several tenants have jobs, each one's share of the starts is its
          ``weight`` (default: 1). A tenant that is alone gets everything.

        Raises ConfigError.
        """
        check_text("a queue's name", name, self.settings.limits.text_chars)
        if claim not in get_args(Claim):
            do = suggest(str(claim), get_args(Claim))
            raise ConfigError(f"no claim is named {claim!r}", do=do)
        check_source("fair", fair)
        if weight and fair is None:
            raise ConfigError("weight needs fair", do="Name the tenant's argument: fair='tenant'")
        for tenant, share in (weight or {}).items():
            if not isinstance(tenant, str) or not is_number(share, 0.001, 1000):
                raise ConfigError(
                    "weight has tenants and numbers from 0.001 to 1000", got={tenant: share}
                )
        self.check_in_time(f"queue({name!r})", for_jobs=True)
        self.registry.claims[name] = claim
        if fair is not None:
            self.registry.fair[name] = fair
            self.registry.weights[name] = dict(weight or {})

    def limit(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        rate: Rate | None = None,
        key: FromArguments | None = None,
        cost: FromArguments | None = None,
    ) -> Limit:
        """Define a limit for jobs, which makes them wait and never drops them::

            vendor = app.limit("vendor", rate=Rate(10, per=1.0, burst=10))
            customer = app.limit("customer", concurrency=2, key="customer_id")

            @app.task(limits=[vendor, customer])
            async def send(customer_id: int, body: str) -> None: ...

        - ``concurrency``: how many jobs run at once, among all processes.
        - ``rate``: how often jobs start: see :class:`Rate`.
        - ``key``: an argument's name, or a function of the arguments by name. Each of its values
          has its own limit. A job whose key is None is not limited.
        - ``cost``: the same for what a start costs (default: 1) of the rate's count.

        A job can have two limits. Processes that define a limit of the same name share it; the
        process that started last decides its numbers. Raises ConfigError.
        """
        limit = Limit(name, concurrency, rate, key, cost)
        if name in self.registry.limits:
            raise ConfigError(f"two limits are named {name!r}", do="Give one another name")
        self.check_in_time(f"the limit {name!r}", for_jobs=True)
        self.registry.limits[name] = limit
        return limit
