-- The campaign's fenced duties: one row for each leader's transaction that committed.
-- locks: none that others could want, in a schema that was just created
-- index: none
create table leasework.chaos_duty (
    duty  text   not null,
    term  bigint not null
)
