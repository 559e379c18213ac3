-- Read one job's record and its place in the queue in one round trip; a queued job that is past its deadline expires.
-- KEYS none.  ARGV now override, id, tenant
-- Replies {} when there is no such job of this tenant, else {{field, value...}, rank, depth, now}: rank = jobs of the
--   model before it, -1 where it is not ready; depth = jobs of the model that are queued.
-- uses: prelude finish

local now, id = now_ms(ARGV[1]), ARGV[2]
local job = redis.call('HMGET', job_key(id), 'state', 'model', 'attempt', 'keep_ms', 'record_ms', 'tenant',
  'queue_deadline_ms')
if job[6] ~= ARGV[3] then return {} end
if job[1] == 'queued' and tonumber(job[7]) <= now then
  finish(id, job, 'expired', now, '')
  redis.call('PUBLISH', DONE, id)
  job[1] = 'expired'
end
local fields = redis.call('HGETALL', job_key(id))
if job[1] ~= 'queued' then return {fields, -1, 0, text(now)} end
local model = job[2]
local rank = redis.call('ZRANK', ready_key(model), id) or -1
local depth = redis.call('ZCARD', ready_key(model)) + redis.call('ZCARD', scheduled_key(model))
return {fields, rank, depth, text(now)}
