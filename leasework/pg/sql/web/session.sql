-- How often all sessions of the dashboard were ended, whether this one was, and whether this login of the database may
-- record what people do.
-- locks: none
-- index: ended_session_pkey
select coalesce((select times from leasework.ended_session where session = ''), 0),
       coalesce((select true from leasework.ended_session where session = %(session)s), false),
       has_function_privilege('leasework.note_act()', 'execute')
