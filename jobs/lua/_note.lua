-- record_of(id, field...): fields of a job's record, and its key: its own, or the one of deleted jobs.
-- note(id, tenant, event, status, attempts, now): what became of a message, in the record that it tells of. With the
-- last message that is not tried any more, record and result go back to the lifetimes that they would have had, and
-- what was deleted meanwhile goes for good.

local function record_of(id, ...)
  local fields = redis.call('HMGET', job_key(id), ...)
  if fields[1] then return fields, job_key(id) end
  return redis.call('HMGET', gone_key(id), ...), gone_key(id)
end

local function give_back(id, tenant, about, job, now)
  local result_left = math.max(tonumber(job[5]) + tonumber(job[6]) - now, 0)
  local lifetime = about == gone_key(id) and 0 or result_left + tonumber(job[7])
  redis.call('HDEL', about, 'webhook_holds')
  redis.call('PEXPIRE', about, text(lifetime))
  redis.call('PEXPIRE', output_key(id, job[8]), text(result_left))
  if lifetime > 0 then redis.call('ZADD', FORGET, text(now + lifetime), id .. tenant) end
  for event in string.gmatch(job[4], '%S+') do
    redis.call('PEXPIRE', delivery_key(delivery_of(id, event)), text(lifetime))
    redis.call('PEXPIRE', attempts_key(delivery_of(id, event)), text(lifetime))
  end
end

local function note(id, tenant, event, status, attempts, now)
  local job, about = record_of(id, 'state', 'webhook_event', 'webhook_pending', 'webhook_told', 'finished_ms',
    'keep_ms', 'record_ms', 'attempt')
  if not job[1] then return end
  local pending = tonumber(job[3]) - (status == 'pending' and 0 or 1)
  redis.call('HSET', about, 'webhook_pending', pending)
  if job[2] == event then redis.call('HSET', about, 'webhook_status', status, 'webhook_attempts', attempts) end
  if pending == 0 and status ~= 'pending' and job[5] then give_back(id, tenant, about, job, now) end
end
