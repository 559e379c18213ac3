-- Store a block of new jobs, each by itself: record, queue entry, index entry and idempotency key in one step. Their
-- payloads were written before.
-- KEYS none: Redis Cluster is refused, so keys are derived from the id.
-- ARGV now override, record version, record ttl ms, the nine limits of _admit.lua; then per job: id, tenant, model,
--   request, head start ms, run-at ms (0 = now), queue ttl ms, result ttl ms (keep), payload lifetime ms,
--   idempotency key ('' = none), fingerprint, events that a webhook wants ('' = no webhook), its host, size in bytes
-- Replies {word, id} per job, with OK also when it was stored (ms): OK; REPLAYED (same idempotency key and body: the
--   first job's id); CONFLICT (same key, other body); a word of _admit.lua; NO_PAYLOAD (it expired or was never
--   written). All but OK leave nothing. Last, what _admit.lua has told of the tenants, in one flat list.
-- uses: prelude enter ready load admit

local now, version, record_ms = now_ms(ARGV[1]), ARGV[2], ARGV[3]
local depths, stored, replies, known = {}, {}, {}, {}

local function depth(model)
  depths[model] = depths[model] or redis.call('ZCARD', ready_key(model)) + redis.call('ZCARD', scheduled_key(model))
  return depths[model]
end

-- The job that an idempotency key stands for already, and whether its body is the same.
local function first_of(idem_key, fingerprint)
  local first = idem_key ~= '' and redis.call('GET', idem_key)
  if not first or redis.call('EXISTS', job_key(string.sub(first, 1, 32))) == 0 then return nil end
  return string.sub(first, 1, 32), string.sub(first, 33) == fingerprint
end

local function store(id, tenant, model, request, head_start, run_at, queue_ttl, keep, lifetime, webhook, host, nbytes)
  local due = math.max(now, run_at)
  lifetime = text(lifetime + due - now)
  if redis.call('PEXPIRE', input_key(id), lifetime) == 0 then return 'NO_PAYLOAD' end
  local refused = admit(tenant, model, nbytes, depth(model), now)
  if refused then return refused end
  local score, deadline = text(due - head_start), text(due + queue_ttl)
  redis.call('HSET', job_key(id), 'v', version, 'state', 'queued', 'tenant', tenant, 'model', model,
    'request', request, 'attempt', '0', 'failures', '0', 'redeliveries', '0', 'score', score, 'created_ms', text(now),
    'due_ms', text(due), 'queue_deadline_ms', deadline, 'keep_ms', keep, 'record_ms', record_ms)
  if webhook ~= '' then redis.call('HSET', job_key(id), 'webhook', webhook, 'webhook_host', host) end
  redis.call('PEXPIRE', job_key(id), lifetime)
  enter(OPEN, deadline, id)
  enter(index_key(tenant), text(now), id)
  take_up(id, nbytes, tenant, model)
  if due > now then enter(scheduled_key(model), text(due), id) else enter_ready(model, tenant, score, id) end
  depths[model], stored[model], known[id] = depth(model) + 1, true, true
  return nil, lifetime
end

local function submit(id, tenant, model, request, head_start, run_at, queue_ttl, keep, lifetime, idem_key, fingerprint,
  webhook, host, nbytes)
  local state, since = unpack(known[id] and redis.call('HMGET', job_key(id), 'state', 'created_ms') or {})
  if state == 'queued' or state == 'in_progress' then return 'OK', id, since end  -- our own call, after a lost reply
  local first, is_same = first_of(idem_key, fingerprint)
  local word, lifetime_ms = state and 'OK' or first and (is_same and 'REPLAYED' or 'CONFLICT'), nil
  if not word then
    word, lifetime_ms = store(id, tenant, model, request, tonumber(head_start), tonumber(run_at), tonumber(queue_ttl),
      keep, tonumber(lifetime), webhook, host, tonumber(nbytes))
  end
  if word then
    redis.call('UNLINK', input_key(id))
    return word, not state and first or id, since or nil
  end
  if idem_key ~= '' then redis.call('SET', idem_key, id .. fingerprint, 'PX', lifetime_ms) end
  return 'OK', id, text(now)
end

-- One look at all: hardly ever is one of them there before.
local function look()
  local records = {}
  for i = 13, #ARGV, 14 do records[#records + 1] = job_key(ARGV[i]) end
  if redis.call('EXISTS', unpack(records)) == 0 then return end
  for i = 13, #ARGV, 14 do known[ARGV[i]] = true end
end

look()
for i = 13, #ARGV, 14 do replies[#replies + 1] = {submit(unpack(ARGV, i, i + 13))} end
enter_all()
write_load()
write_rates(now)
for model in pairs(stored) do ring(model) end
replies[#replies + 1] = told(now)
return replies
