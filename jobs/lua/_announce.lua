-- enqueue(delivery, now): make a delivery due now, as an ordinary job in arq's queue.
-- announce(id, tenant, wanted, event, now): leave the message about this event, once, where the job's owner wants it
-- (`wanted` = the record's field webhook). Gives for how long the record is needed for its messages, 0 where for none.

local function enqueue(delivery, now)
  local instant = ''
  for i = 7, 0, -1 do instant = instant .. string.char(math.floor(now / 256 ^ i) % 256) end
  redis.call('SET', arq_job_key(delivery), ARQ_JOB_HEAD .. instant, 'PX', text(HELD_MS))
  redis.call('ZADD', DELIVERIES, text(now), delivery)
  redis.call('PUBLISH', ANNOUNCED, '')
end

local function announce(id, tenant, wanted, event, now)
  local job, delivery, instant, word = job_key(id), delivery_of(id, event), text(now), ' ' .. event .. ' '
  local host, told, pending = unpack(redis.call('HMGET', job, 'webhook_host', 'webhook_told', 'webhook_pending'))
  told, pending = told or ' ', tonumber(pending or 0)
  if string.find(wanted, word, 1, true) and not string.find(told, word, 1, true) then
    pending = pending + 1
    redis.call('HSET', delivery_key(delivery), 'tenant', tenant, 'host', host or '', 'status', 'pending',
      'attempts', '0', 'tried', '0', 'created_ms', instant, 'since_ms', instant, 'next_ms', instant)
    redis.call('PEXPIRE', delivery_key(delivery), text(HELD_MS))
    redis.call('ZREMRANGEBYSCORE', undelivered_key(tenant), '-inf', text(now - LISTED_MS))
    redis.call('ZADD', undelivered_key(tenant), instant, delivery)
    redis.call('HSET', job, 'webhook_event', event, 'webhook_status', 'pending', 'webhook_attempts', '0',
      'webhook_told', told .. event .. ' ', 'webhook_pending', pending)
    enqueue(delivery, now)
  end
  return pending > 0 and HELD_MS or 0
end
