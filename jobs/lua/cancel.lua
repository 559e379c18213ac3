-- Cancel a job. A running one ends at once too: its attempt is fenced off, and its worker is told to stop.
-- KEYS none.  ARGV now override, id, tenant
-- Replies: CANCELED (it was queued); STOPPING (it was running); DONE (it was terminal already); NOT_FOUND.
-- uses: prelude load announce finish

local now, id, tenant = now_ms(ARGV[1]), ARGV[2], ARGV[3]
local job = record(id, unpack(FINISH_FIELDS))
if job[6] ~= tenant then return 'NOT_FOUND' end
if job[1] ~= 'queued' and job[1] ~= 'in_progress' then return 'DONE' end
even_when_full()
finish(id, job, 'canceled', now, '')
clear_finished()
if job[1] == 'queued' then return 'CANCELED' end
redis.call('PUBLISH', CANCEL, id)
return 'STOPPING'
