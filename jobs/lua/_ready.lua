-- enter_ready(model, tenant, score, id): note that a job is ready, among all of its model and among its tenant's;
-- `enter_all` writes it.
-- join(model, tenant): a tenant that has ready jobs takes part in the turns of the model, level with the one that was
-- given least: who comes from a pause has no more to claim than the others.

local joined = {}

local function join(model, tenant)
  local turns = turns_key(model)
  if redis.call('ZSCORE', turns, tenant) then return end
  local least = redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES')
  redis.call('ZADD', turns, least[2] or '0', tenant)
end

local function enter_ready(model, tenant, score, id)
  local share = share_key(model, tenant)
  enter(ready_key(model), score, id)
  enter(share, score, id)
  if not joined[share] then join(model, tenant) end
  joined[share] = true
end
