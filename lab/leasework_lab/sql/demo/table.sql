-- The record of each run of the demo's handlers: the evidence for its scorecard.
-- locks: none that others could want, in a schema that was just created
-- index: none
create table leasework.demo_run (
    id           bigint      generated always as identity primary key,
    job          uuid        not null,
    task         text        not null,
    tick_at      timestamptz,
    worker       text        not null,
    attempt      smallint    not null,
    started_at   timestamptz not null,
    finished_at  timestamptz
)
