-- The campaign's effects: one row for each handler's completing transaction.
-- locks: none that others could want, in a schema that was just created
-- index: none
create table leasework.chaos_effect (
    ref    text   not null,
    job    uuid   not null,
    token  bigint not null
)
