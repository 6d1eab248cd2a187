"""The hand-made version: each scheduler reads the missed deadlines, pages, and marks them.

    python naive.py --deadlines 20 --schedulers 2

Between the read and the mark another scheduler reads the same deadline, so there are two pages. A
scheduler that dies in between has the same effect. Prints the number of deadlines and of pages.
"""

import argparse
import os
import threading
import time
import uuid

import psycopg

TABLE = """create table if not exists naive_deadline (
    id uuid primary key, due_at timestamptz not null, told boolean not null default false)"""


class Pager:
    def __init__(self) -> None:
        self.pages: list[uuid.UUID] = []

    def page(self, deadline: uuid.UUID) -> None:
        time.sleep(0.01)  # the pager needs some time
        self.pages.append(deadline)


def scheduler(dsn: str, pager: Pager, together: threading.Barrier) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        together.wait()
        late = connection.execute(
            "select id from naive_deadline where due_at < now() and not told"
        ).fetchall()
        for (deadline,) in late:
            pager.page(deadline)
            connection.execute("update naive_deadline set told = true where id = %s", [deadline])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--deadlines", type=int, default=20)
    parser.add_argument("--schedulers", type=int, default=2)
    options = parser.parse_args()
    dsn = os.environ["LEASEWORK_DSN"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute("truncate naive_deadline")
        for _ in range(options.deadlines):
            connection.execute(
                "insert into naive_deadline values (%s, now() - interval '1 second')",
                [uuid.uuid4()],
            )
    pager, together = Pager(), threading.Barrier(options.schedulers)
    threads = [
        threading.Thread(target=scheduler, args=(dsn, pager, together))
        for _ in range(options.schedulers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{options.deadlines} deadlines, {len(pager.pages)} pages", flush=True)


if __name__ == "__main__":
    main()
