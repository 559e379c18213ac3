-- Forget a job: record, payload, result, entries.
-- KEYS none.  ARGV now override, id, tenant, 1 to cancel it first if it is not done
-- Replies: OK; NOT_DONE (and not forced: nothing changed); NOT_FOUND.
-- uses: prelude finish

local now, id, tenant = now_ms(ARGV[1]), ARGV[2], ARGV[3]
if redis.call('HGET', job_key(id), 'tenant') ~= tenant then return 'NOT_FOUND' end
local job = redis.call('HMGET', job_key(id), unpack(FINISH_FIELDS))
if job[1] == 'queued' or job[1] == 'in_progress' then
  if ARGV[4] ~= '1' then return 'NOT_DONE' end
  finish(id, job, 'canceled', now, '')
  redis.call('PUBLISH', CANCEL, id)
  redis.call('PUBLISH', DONE, id)
end
redis.call('UNLINK', job_key(id), output_key(id, job[3]))
redis.call('ZREM', index_key(tenant), id)
return 'OK'
