-- Forget a job: record, payload, result, entries.
-- KEYS none.  ARGV now override, id, tenant, 1 to cancel it first if it is not done
-- Replies: OK; NOT_DONE (and not forced: nothing changed); NOT_FOUND.
-- uses: prelude finish

local now, id, tenant = now_ms(ARGV[1]), ARGV[2], ARGV[3]
local job = record(id, unpack(FINISH_FIELDS))
if job[6] ~= tenant then return 'NOT_FOUND' end
if job[1] == 'queued' or job[1] == 'in_progress' then
  if ARGV[4] ~= '1' then return 'NOT_DONE' end
  even_when_full()
  finish(id, job, 'canceled', now, '')
  clear_finished()
  redis.call('PUBLISH', CANCEL, id)
end
redis.call('UNLINK', job_key(id), output_key(id, job[3]))
redis.call('ZREM', index_key(tenant), id)
redis.call('ZREM', FORGET, id .. tenant)
return 'OK'
