-- What each run of one of the demo's handlers leaves behind: the evidence for its scorecard.
-- locks: none that anybody could want, in a schema that was made just now
-- index: none
create table leasehold.demo_run (
    id           bigint      generated always as identity primary key,
    job          uuid        not null,
    task         text        not null,
    tick_at      timestamptz,
    worker       text        not null,
    attempt      smallint    not null,
    started_at   timestamptz not null,
    finished_at  timestamptz
)
