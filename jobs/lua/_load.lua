-- What jobs that have not ended take up, in sums by tenant and model. An entry of a job's own says what was added for
-- it, and exactly that is taken off at its end, whatever became of its record: the sums can't drift.
-- load(field): a sum as it was before this script. take_up(id, nbytes, tenant, model): count a new job.
-- free(ids): these have ended. write_load(): write what changed; at the end of a script that changes anything.

local changes, held = {}, {}

-- What changes for the jobs of a tenant and model: `jobs` and `nbytes` that are open, and how many have `ended`.
local function change(tenant, model)
  local of_tenant = changes[tenant]
  if not of_tenant then
    of_tenant = {}
    changes[tenant] = of_tenant
  end
  if not of_tenant[model] then of_tenant[model] = {jobs = 0, nbytes = 0, ended = 0} end
  return of_tenant[model]
end

local function load(field)
  return tonumber(redis.call('HGET', LOAD, field) or 0)
end

local function take_up(id, nbytes, tenant, model)
  held[#held + 1] = {id = id, nbytes = nbytes, tenant = tenant, model = model}
end

local function free(ids)
  for _, entry in ipairs(redis.call('HMGET', HELD, unpack(ids))) do
    local nbytes, tenant, model = string.match(entry or '', '^(%d+):([^:]*):(.*)$')
    if nbytes then
      local now = change(tenant, model)
      now.jobs, now.nbytes, now.ended = now.jobs - 1, now.nbytes - nbytes, now.ended + 1
    end
  end
  redis.call('HDEL', HELD, unpack(ids))
end

-- Note what the new jobs take up; one that has an entry already, from a lost record of its id, is counted by that.
local function write_held()
  local ids, entries = {}, {}
  for i, job in ipairs(held) do ids[i] = job.id end
  for i, known in ipairs(#ids > 0 and redis.call('HMGET', HELD, unpack(ids)) or {}) do
    local job = held[i]
    if not known then
      local now = change(job.tenant, job.model)
      now.jobs, now.nbytes = now.jobs + 1, now.nbytes + job.nbytes
      entries[#entries + 1] = job.id
      entries[#entries + 1] = text(job.nbytes) .. ':' .. job.tenant .. ':' .. job.model
    end
  end
  if #entries > 0 then redis.call('HSET', HELD, unpack(entries)) end
end

local function write(field, amount)
  if amount ~= 0 then redis.call('HINCRBY', LOAD, field, text(amount)) end
end

local function write_load()
  write_held()
  for tenant, models in pairs(changes) do
    for model, now in pairs(models) do
      write('bytes', now.nbytes)
      write('bytes:model:' .. model, now.nbytes)
      write('bytes:tenant:' .. tenant, now.nbytes)
      write('jobs:tenant:' .. tenant, now.jobs)
      write('ended', now.ended)
      write('ended:model:' .. model, now.ended)
      write('ended:tenant:' .. tenant, now.ended)
    end
  end
  changes, held = {}, {}
end
