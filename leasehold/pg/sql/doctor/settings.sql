-- What a new session of this role gets, whatever this one has set for itself.
-- locks: none
-- index: none
select s.name, s.reset_val, s.unit from pg_settings s where s.name = any (%(names)s)
