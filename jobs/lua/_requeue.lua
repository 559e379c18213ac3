-- requeue(id, model, now, delay_ms, score): put a job that was in progress back among the queued ones.

local function requeue(id, model, now, delay_ms, score)
  redis.call('ZREM', leased_key(model), id)
  if delay_ms > 0 then
    redis.call('ZADD', scheduled_key(model), text(now + delay_ms), id)
  else
    local tenant = record(id, 'tenant')[1] or ''
    redis.call('ZADD', ready_key(model), score, id)
    redis.call('ZADD', share_key(model, tenant), score, id)
    join(model, tenant)
  end
  redis.call('HSET', job_key(id), 'state', 'queued', 'due_ms', text(now + delay_ms))
  ring(model)
end
