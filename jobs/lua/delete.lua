-- Forget a job: record, payload, result, entries. What its messages tell stays, out of sight, until they are delivered
-- or given up.
-- KEYS none.  ARGV now override, id, tenant, 1 to cancel it first if it is not done
-- Replies: OK; NOT_DONE (and not forced: nothing changed); NOT_FOUND.
-- uses: prelude load announce finish

local now, id, tenant = now_ms(ARGV[1]), ARGV[2], ARGV[3]
local job = record(id, unpack(FINISH_FIELDS))
if job[6] ~= tenant then return 'NOT_FOUND' end
if job[1] == 'queued' or job[1] == 'in_progress' then
  if ARGV[4] ~= '1' then return 'NOT_DONE' end
  even_when_full()
  finish(id, job, 'canceled', now, '')
  clear_finished()
  redis.call('PUBLISH', CANCEL, id)
end
redis.call('UNLINK', output_key(id, job[3]))
if tonumber(redis.call('HGET', job_key(id), 'webhook_pending') or 0) > 0 then
  redis.call('RENAME', job_key(id), gone_key(id))
  if redis.call('HGET', gone_key(id), 'state') == 'succeeded' then redis.call('HDEL', gone_key(id), 'outcome') end
else
  for event in string.gmatch(redis.call('HGET', job_key(id), 'webhook_told') or '', '%S+') do
    local delivery = delivery_of(id, event)
    redis.call('UNLINK', delivery_key(delivery), attempts_key(delivery))
    redis.call('ZREM', undelivered_key(tenant), delivery)
  end
  redis.call('UNLINK', job_key(id))
end
redis.call('ZREM', index_key(tenant), id)
redis.call('ZREM', FORGET, id .. tenant)
return 'OK'
