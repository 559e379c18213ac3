-- settle(state): end a block of attempts in `state`; shared by succeed and fail.
-- ARGV[1] now override; then per job: id, attempt, outcome.
-- Replies one word per job: OK; ALREADY (this very attempt ended so before: a repeated call); LEASE_LOST (another
-- attempt or another end stands: nothing changed, this attempt's output bytes are dropped).

local function settle(state)
  local now, replies, done = now_ms(ARGV[1]), {}, {}
  for i = 2, #ARGV, 3 do
    local id, attempt, outcome = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local job = redis.call('HMGET', job_key(id), unpack(FINISH_FIELDS))
    local reply = 'LEASE_LOST'
    if job[1] == 'in_progress' and job[3] == attempt then
      finish(id, job, state, now, outcome)
      redis.call('PEXPIRE', output_key(id, attempt), job[4])
      done[#done + 1] = id
      reply = 'OK'
    elseif job[1] == state and job[3] == attempt then
      reply = 'ALREADY'
    else
      redis.call('UNLINK', output_key(id, attempt))
    end
    replies[#replies + 1] = reply
  end
  if #done > 0 then redis.call('PUBLISH', DONE, table.concat(done)) end
  return replies
end
