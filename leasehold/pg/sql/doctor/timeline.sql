-- The server's timeline, as terms are lifted by it; asked without the schema's function.
-- locks: none
-- index: none
select ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint
