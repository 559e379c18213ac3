-- Record one attempt of a delivery and what follows from it, in arq's queue as well.
-- KEYS none.  ARGV now override, delivery, job id, event, what became of the attempt, status of the delivery after it,
--   when it is tried next (ms, 0 = never), most attempts that are kept
-- Replies: OK; ENDED (the delivery had ended before: the attempt is recorded, and nothing else changed); NOT_FOUND.
-- uses: prelude part

local now, delivery, id, event, status = now_ms(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[6]
local key, log = delivery_key(delivery), attempts_key(delivery)
local before = redis.call('HMGET', key, 'tenant', 'status')

even_when_full()
redis.call('DEL', arq_in_progress_key(delivery))
if before[2] == 'pending' and status == 'pending' then
  redis.call('ZADD', DELIVERIES, ARGV[7], delivery)
else
  redis.call('ZREM', DELIVERIES, delivery)
  redis.call('DEL', arq_job_key(delivery), arq_retry_key(delivery))
end
if not before[1] then return 'NOT_FOUND' end

redis.call('RPUSH', log, ARGV[5])
redis.call('LTRIM', log, -tonumber(ARGV[8]), -1)
redis.call('PEXPIRE', log, redis.call('PTTL', key))
local attempts = redis.call('HINCRBY', key, 'attempts', 1)
if before[2] ~= 'pending' then return 'ENDED' end

redis.call('HINCRBY', key, 'tried', 1)
redis.call('HSET', key, 'status', status, 'next_ms', ARGV[7])
local about = about_key(id)
if redis.call('HGET', about, 'webhook_event') == event then
  redis.call('HSET', about, 'webhook_status', status, 'webhook_attempts', attempts)
end
if status == 'delivered' then redis.call('ZREM', undelivered_key(before[1]), delivery) end
if status ~= 'pending' then part(id, before[1], now) end
return 'OK'
