-- about_key(id): where the record of a job is: its own key, or the one of deleted jobs.
-- part(id, tenant, now): one message of this job is not tried any more; with the last one, its record and its result go
-- back to the lifetimes that they would have had, and what was deleted meanwhile goes for good.

local function about_key(id)
  return redis.call('EXISTS', job_key(id)) == 1 and job_key(id) or gone_key(id)
end

local function part(id, tenant, now)
  local about = about_key(id)
  local pending = tonumber(redis.call('HGET', about, 'webhook_pending') or 0)
  if pending > 0 then redis.call('HSET', about, 'webhook_pending', pending - 1) end
  local job = redis.call('HMGET', about, 'finished_ms', 'keep_ms', 'record_ms', 'attempt')
  if pending ~= 1 or not job[1] then return end
  local result_until = tonumber(job[1]) + tonumber(job[2])
  local lifetime = math.max(result_until - now, 0) + tonumber(job[3])
  if about == gone_key(id) then
    lifetime = 0
  else
    redis.call('HDEL', about, 'webhook_holds')
    redis.call('PEXPIRE', output_key(id, job[4]), text(math.max(result_until - now, 0)))
    redis.call('ZADD', FORGET, text(now + lifetime), id .. tenant)
  end
  redis.call('PEXPIRE', about, text(lifetime))
  for _, event in ipairs(EVENTS) do
    redis.call('PEXPIRE', delivery_key(delivery_of(id, event)), text(lifetime))
    redis.call('PEXPIRE', attempts_key(delivery_of(id, event)), text(lifetime))
  end
end
