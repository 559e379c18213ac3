-- Turns among the tenants that have ready jobs of one model. A tenant's pass says how much it was given: lowest first.
-- next_in_turn(model, count): ids of ready jobs, each tenant's best first, in turns; goes on where the last call ended.
--   With one tenant alone these are simply the ready jobs.
-- drop(id, given): an entry of these goes; given = 1: as a job to the caller. close_turns(model): write that down.

local MOST_TENANTS = 100
local tenants, listed, owners, seen = {}, nil, {}, 0

local function open_turns(model)
  listed = redis.call('ZRANGE', turns_key(model), 0, MOST_TENANTS - 1, 'WITHSCORES')
  for i = 1, #listed, 2 do
    local weight, pass = #listed > 2 and tonumber(redis.call('HGET', WEIGHTS, listed[i])), tonumber(listed[i + 1])
    tenants[#tenants + 1] = {name = listed[i], pass = pass, turn = pass, step = 1 / (weight or 1), page = {}, at = 0,
      seen = 0, gone = {}}
  end
  listed = {unpack(tenants)}
end

local function next_of(model, tenant, count)
  if tenant.at == #tenant.page then
    local first = tenant.seen
    tenant.page = redis.call('ZRANGE', share_key(model, tenant.name), first, first + math.ceil(count / #tenants) - 1)
    tenant.at, tenant.seen = 0, first + #tenant.page
  end
  tenant.at = tenant.at + 1
  return tenant.page[tenant.at]
end

local function next_in_turn(model, count)
  if not listed then open_turns(model) end
  if #listed <= 1 then
    local page = redis.call('ZRANGE', ready_key(model), seen, seen + count - 1)
    seen = seen + #page
    return page
  end
  local page = {}
  while #page < count and #tenants > 0 do
    local least = 1
    for i = 2, #tenants do
      if tenants[i].turn < tenants[least].turn then least = i end
    end
    local tenant = tenants[least]
    local id = next_of(model, tenant, count)
    if id then
      page[#page + 1], owners[id], tenant.turn = id, tenant, tenant.turn + tenant.step
    else
      table.remove(tenants, least)
    end
  end
  return page
end

local function drop(id, given)
  local owner = owners[id] or listed[1]
  if not owner then return end
  owner.gone[#owner.gone + 1] = id
  owner.pass = owner.pass + (given or 0) * owner.step
end

local function close_turns(model)
  for _, tenant in ipairs(listed or {}) do
    local share = share_key(model, tenant.name)
    if #tenant.gone > 0 then redis.call('ZREM', share, unpack(tenant.gone)) end
    if redis.call('EXISTS', share) == 0 then
      redis.call('ZREM', turns_key(model), tenant.name)
    elseif #tenant.gone > 0 and #listed > 1 then
      redis.call('ZADD', turns_key(model), string.format('%.6f', tenant.pass), tenant.name)
    end
  end
end
