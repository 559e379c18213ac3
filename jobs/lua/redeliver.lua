-- Have deliveries tried again from the start of their schedule, at once: those that ended, and those that wait.
-- KEYS none.  ARGV now override, tenant; then per delivery: delivery, job id, event
-- Replies one word per delivery: OK; RUNNING (it is being sent this very moment: nothing changed); NOT_FOUND (there is
-- no such delivery of this tenant, or its job is gone).
-- uses: prelude announce

local now, tenant, replies = now_ms(ARGV[1]), ARGV[2], {}

-- The record must be there while its messages are tried, and so must a result that is still to be had.
local function hold(id)
  local job = redis.call('HMGET', job_key(id), 'finished_ms', 'keep_ms', 'attempt')
  redis.call('HINCRBY', job_key(id), 'webhook_pending', 1)
  if not job[1] then return end
  keep_at_least(job_key(id), HELD_MS)
  redis.call('ZADD', FORGET, text(now + redis.call('PTTL', job_key(id))), id .. tenant)
  if tonumber(job[1]) + tonumber(job[2]) > now then
    redis.call('HSET', job_key(id), 'webhook_holds', '1')
    keep_at_least(output_key(id, job[3]), HELD_MS)
  end
end

local function redeliver(delivery, id, event)
  local key = delivery_key(delivery)
  local before = redis.call('HMGET', key, 'tenant', 'status', 'created_ms')
  if before[1] ~= tenant or redis.call('HGET', job_key(id), 'tenant') ~= tenant then return 'NOT_FOUND' end
  if redis.call('EXISTS', arq_in_progress_key(delivery)) == 1 then return 'RUNNING' end
  if before[2] ~= 'pending' then hold(id) end
  redis.call('HSET', key, 'status', 'pending', 'tried', '0', 'since_ms', text(now), 'next_ms', text(now))
  redis.call('PEXPIRE', key, text(HELD_MS))
  redis.call('PEXPIRE', attempts_key(delivery), text(HELD_MS))
  redis.call('ZADD', undelivered_key(tenant), before[3], delivery)
  if redis.call('HGET', job_key(id), 'webhook_event') == event then
    redis.call('HSET', job_key(id), 'webhook_status', 'pending')
  end
  enqueue(delivery, now)
  return 'OK'
end

even_when_full()
for i = 3, #ARGV, 3 do replies[#replies + 1] = redeliver(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
return replies
