-- Read one job's record and its place in the queue in one round trip; a queued job that is past its deadline expires.
-- KEYS none.  ARGV now override, id, tenant; the record's fields to read
-- Replies {} when there is no such job of this tenant, else {{tenant, state, model, deadline, value or nil...}, rank,
--   depth, now}: rank = jobs of the model before it, -1 where it is not ready; depth = queued jobs of the model.
-- uses: prelude load announce finish

local now, id = now_ms(ARGV[1]), ARGV[2]
local function read()
  return record(id, 'tenant', 'state', 'model', 'queue_deadline_ms', unpack(ARGV, 4))
end

local job = read()
if job[1] ~= ARGV[3] then return {} end
if job[2] == 'queued' and (tonumber(job[4]) or now + 1) <= now and is_waiting(job[3], id) then
  even_when_full()
  finish(id, record(id, unpack(FINISH_FIELDS)), 'expired', now, '')
  clear_finished()
  job = read()
end
if job[2] ~= 'queued' then return {job, -1, 0, text(now)} end
local rank = redis.call('ZRANK', ready_key(job[3]), id) or -1
local depth = redis.call('ZCARD', ready_key(job[3])) + redis.call('ZCARD', scheduled_key(job[3]))
return {job, rank, depth, text(now)}
