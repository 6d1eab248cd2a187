-- How long the server allows a statement of this session.
-- locks: none
-- index: none
select set_config('statement_timeout', %(statement_ms)s, false)
