-- The campaign's effects: a row for each completing transaction of a handler.
-- locks: none that anybody could want, in a schema that was made just now
-- index: none
create table leasehold.chaos_effect (
    ref    text   not null,
    job    uuid   not null,
    token  bigint not null
)
