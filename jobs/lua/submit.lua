-- Store a new job: record, queue entry, index entry and idempotency key in one step. Its payload was written before.
-- KEYS none: Redis Cluster is refused, so keys are derived from the id.
-- ARGV now override, id, tenant, model, record version, request, head start ms, run-at ms (0 = now), queue ttl ms,
--   result ttl ms (keep), record ttl ms, payload lifetime ms, most queued jobs, idempotency key ('' = none),
--   fingerprint, events that a webhook wants ('' = no webhook), its host
-- Replies {word, id}: OK; REPLAYED (same idempotency key and body: the first job's id); CONFLICT (same key, other
--   body); FULL (the model's queue is); NO_PAYLOAD (it expired or was never written). All but OK leave nothing behind.
-- uses: prelude

local now, id, tenant, model = now_ms(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local run_at, lifetime, idem_key, fingerprint = tonumber(ARGV[8]), tonumber(ARGV[12]), ARGV[14], ARGV[15]

local function refuse(word, other)
  redis.call('UNLINK', input_key(id))
  return {word, other}
end

local state = redis.call('HGET', job_key(id), 'state')
if state then  -- our own call, repeated after a lost reply; a job that ended meanwhile has no use for its payload
  if state ~= 'queued' and state ~= 'in_progress' then redis.call('UNLINK', input_key(id)) end
  return {'OK', id}
end
if idem_key ~= '' then
  local first = redis.call('GET', idem_key)
  if first and redis.call('EXISTS', job_key(string.sub(first, 1, 32))) == 1 then
    return refuse(string.sub(first, 33) == fingerprint and 'REPLAYED' or 'CONFLICT', string.sub(first, 1, 32))
  end
end
local depth = redis.call('ZCARD', ready_key(model))
if depth + redis.call('ZCARD', scheduled_key(model)) >= tonumber(ARGV[13]) then return refuse('FULL', id) end
local due = math.max(now, run_at)
lifetime = lifetime + due - now
if redis.call('PEXPIRE', input_key(id), text(lifetime)) == 0 then return refuse('NO_PAYLOAD', id) end

local score, deadline = text(due - tonumber(ARGV[7])), text(due + tonumber(ARGV[9]))
redis.call('HSET', job_key(id), 'v', ARGV[5], 'state', 'queued', 'tenant', tenant, 'model', model, 'request', ARGV[6],
  'attempt', '0', 'failures', '0', 'redeliveries', '0', 'score', score, 'created_ms', text(now),
  'due_ms', text(due), 'queue_deadline_ms', deadline, 'keep_ms', ARGV[10], 'record_ms', ARGV[11])
if ARGV[16] ~= '' then redis.call('HSET', job_key(id), 'webhook', ARGV[16], 'webhook_host', ARGV[17]) end
redis.call('PEXPIRE', job_key(id), text(lifetime))
redis.call('ZADD', OPEN, deadline, id)
redis.call('ZADD', index_key(tenant), text(now), id)
if idem_key ~= '' then redis.call('SET', idem_key, id .. fingerprint, 'PX', text(lifetime)) end
if due > now then
  redis.call('ZADD', scheduled_key(model), text(due), id)
else
  redis.call('ZADD', ready_key(model), score, id)
end
ring(model)
return {'OK', id}
