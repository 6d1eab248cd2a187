-- The settings that a new session of this role gets, whatever this session has set.
-- locks: none
-- index: none
select s.name, s.reset_val, s.unit from pg_settings s where s.name = any (%(names)s)
