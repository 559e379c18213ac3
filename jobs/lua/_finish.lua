-- finish(id, job, state, now, outcome): make a job terminal. `job` = {state, model, attempt, keep_ms, record_ms} as
-- text. Frees queue entries and the payload, starts the clocks of result and record. The caller publishes.

local FINISH_FIELDS = {'state', 'model', 'attempt', 'keep_ms', 'record_ms'}

local function finish(id, job, state, now, outcome)
  local model, keep_ms = job[2], tonumber(job[4])
  if job[1] == 'in_progress' then
    redis.call('ZREM', leased_key(model), id)
  elseif redis.call('ZREM', ready_key(model), id) == 0 then
    redis.call('ZREM', scheduled_key(model), id)
  end
  redis.call('ZREM', OPEN, id)
  redis.call('UNLINK', input_key(id))
  if outcome == '' then
    redis.call('HSET', job_key(id), 'state', state, 'finished_ms', text(now))
  else
    redis.call('HSET', job_key(id), 'state', state, 'finished_ms', text(now), 'outcome', outcome)
  end
  redis.call('PEXPIRE', job_key(id), text(keep_ms + tonumber(job[5])))
end
