-- Read one job's record and its place in the queue in one round trip; a queued job that is past its deadline expires.
-- KEYS none.  ARGV now override, id, tenant
-- Replies {} when there is no such job of this tenant, else {{field, value...}, rank, depth, now}: rank = jobs of the
--   model before it, -1 where it is not ready; depth = jobs of the model that are queued.
-- uses: prelude announce finish

local function read(id)
  local flat, job = redis.call('HGETALL', job_key(id)), {}
  for i = 1, #flat, 2 do job[flat[i]] = flat[i + 1] end
  return flat, job
end

local now, id = now_ms(ARGV[1]), ARGV[2]
local flat, job = read(id)
if job.tenant ~= ARGV[3] then return {} end
if job.state == 'queued' and (tonumber(job.queue_deadline_ms) or now + 1) <= now then
  even_when_full()
  finish(id, record(id, unpack(FINISH_FIELDS)), 'expired', now, '')
  clear_finished()
  flat, job = read(id)
end
if job.state ~= 'queued' then return {flat, -1, 0, text(now)} end
local model = job.model
local rank = redis.call('ZRANK', ready_key(model), id) or -1
local depth = redis.call('ZCARD', ready_key(model)) + redis.call('ZCARD', scheduled_key(model))
return {flat, rank, depth, text(now)}
