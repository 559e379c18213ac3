-- promote_due(model, now): move scheduled jobs that are due to the ready ones, each to its own place there.

local MOST_PROMOTED = 1000

local function promote_due(model, now)
  local scheduled, places = scheduled_key(model), {}
  local due = redis.call('ZRANGEBYSCORE', scheduled, '-inf', text(now), 'LIMIT', 0, MOST_PROMOTED)
  if #due == 0 then return end
  for _, id in ipairs(due) do
    local score = record(id, 'score')[1]
    places[#places + 1], places[#places + 2] = tonumber(score) and score or '0', id
  end
  redis.call('ZREM', scheduled, unpack(due))
  redis.call('ZADD', ready_key(model), unpack(places))
end
