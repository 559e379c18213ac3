-- admit(tenant, model, nbytes, depth, now): why a new job may not be stored, nil where it may, and is counted then.
-- QUOTA_RATE, QUOTA_JOBS, QUOTA_BYTES: its tenant has had or holds too much; FULL: its model's queue does; CROWDED: all
-- queues together do; NO_MEMORY: Redis uses more than its share. `depth` = queued jobs of the model. write_rates(now):
-- note the rates; called once, at the end. told(now): of each tenant that came by its name, jobs, their
-- bytes, and by how many ms it is ahead of its rate.
-- ARGV[4] to ARGV[12] are the limits: most jobs and bytes of a model, of all and of a tenant; ms between a tenant's
-- jobs in the long run (0 = any), and how many it may submit at once; the share of Redis' maxmemory for new jobs.

local limits = {model_jobs = tonumber(ARGV[4]), model_bytes = tonumber(ARGV[5]), jobs = tonumber(ARGV[6]),
  bytes = tonumber(ARGV[7]), tenant_jobs = tonumber(ARGV[8]), tenant_bytes = tonumber(ARGV[9]),
  pause_ms = tonumber(ARGV[10]), burst = tonumber(ARGV[11]),
  memory_share = tonumber(ARGV[12])}
local rates, tenants, models, all, spare_bytes = {}, {}, {}, nil, nil

-- rates[tenant] is when its next job would be due, were they evenly apart.
local function is_in_time(tenant, now)
  if limits.pause_ms == 0 then return true end
  rates[tenant] = rates[tenant] or math.max(tonumber(redis.call('GET', rate_key(tenant)) or 0), now)
  return rates[tenant] - now <= (limits.burst - 1) * limits.pause_ms
end

-- What a tenant, a model and all have: read once, then kept with the jobs of this block, which are written at its end.
local function standing(tenant, model)
  all = all or {jobs = redis.call('ZCARD', OPEN), nbytes = load('bytes')}
  tenants[tenant] = tenants[tenant]
    or {jobs = load('jobs:tenant:' .. tenant), nbytes = load('bytes:tenant:' .. tenant)}
  models[model] = models[model] or {nbytes = load('bytes:model:' .. model)}
  return tenants[tenant], models[model]
end

-- Whether there is memory for a job whose payload is there already; where not, that is about to go. Redis is asked once
-- a block; one without a limit, or that we may not ask, has memory for all.
local function has_memory(nbytes)
  if not spare_bytes then
    local info = redis.pcall('INFO', 'memory')
    local most = type(info) == 'string' and tonumber(string.match(info, '\nmaxmemory:(%d+)')) or 0
    spare_bytes = most == 0 and math.huge
      or most * limits.memory_share - tonumber(string.match(info, '\nused_memory:(%d+)'))
  end
  if spare_bytes >= 0 then return true end
  spare_bytes = spare_bytes + nbytes
  return false
end

local function admit(tenant, model, nbytes, depth, now)
  local theirs, its = standing(tenant, model)
  if not is_in_time(tenant, now) then return 'QUOTA_RATE' end
  if theirs.jobs >= limits.tenant_jobs then return 'QUOTA_JOBS' end
  if theirs.nbytes + nbytes > limits.tenant_bytes then return 'QUOTA_BYTES' end
  if depth >= limits.model_jobs or its.nbytes + nbytes > limits.model_bytes then return 'FULL' end
  if all.jobs >= limits.jobs or all.nbytes + nbytes > limits.bytes then return 'CROWDED' end
  if not has_memory(nbytes) then return 'NO_MEMORY' end
  theirs.jobs, all.jobs = theirs.jobs + 1, all.jobs + 1
  theirs.nbytes, its.nbytes, all.nbytes = theirs.nbytes + nbytes, its.nbytes + nbytes, all.nbytes + nbytes
  if rates[tenant] then rates[tenant] = rates[tenant] + limits.pause_ms end
  return nil
end

local function write_rates(now)
  for tenant, due in pairs(rates) do
    if due > now then redis.call('SET', rate_key(tenant), text(due), 'PX', text(math.ceil(due - now))) end
  end
end

local function told(now)
  local parts = {}
  for tenant, theirs in pairs(tenants) do
    local ahead = math.ceil(math.max((rates[tenant] or now) - now, 0))
    for _, part in ipairs({tenant, theirs.jobs, theirs.nbytes, ahead}) do parts[#parts + 1] = part end
  end
  return parts
end
