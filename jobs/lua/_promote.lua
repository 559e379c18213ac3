-- promote_due(model, now): move scheduled jobs that are due to the ready ones, each to its own place there.

local MOST_PROMOTED = 1000

local function promote_due(model, now)
  local scheduled = scheduled_key(model)
  local due = redis.call('ZRANGEBYSCORE', scheduled, '-inf', text(now), 'LIMIT', 0, MOST_PROMOTED)
  if #due == 0 then return end
  for _, id in ipairs(due) do
    local job = record(id, 'score', 'tenant')
    enter_ready(model, job[2] or '', tonumber(job[1]) and job[1] or '0', id)
  end
  redis.call('ZREM', scheduled, unpack(due))
  enter_all()
end
