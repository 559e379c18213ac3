-- settle(state): end a block of attempts in `state`; shared by succeed and fail. An attempt that failed is counted.
-- ARGV[1] now override; then per job: id, attempt, 1 if it wrote an output (else 0), outcome.
-- Replies one word per job: OK; ALREADY (this very attempt ended so before: a repeated call); LEASE_LOST (another
-- attempt or another end stands: nothing changed, this attempt's output bytes are dropped); NO_OUTPUT (its output is
-- not there: nothing changed, it is still in progress).

local function settle(state)
  local now, replies = now_ms(ARGV[1]), {}
  even_when_full()
  for i = 2, #ARGV, 4 do
    local id, attempt, has_output, outcome = ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1', ARGV[i + 3]
    local job = record(id, unpack(FINISH_FIELDS))
    local is_ours, reply = job[3] == attempt, 'LEASE_LOST'
    if is_ours and job[1] == 'in_progress' then
      if has_output and redis.call('PEXPIRE', output_key(id, attempt), job[4]) == 0 then
        reply = 'NO_OUTPUT'
      else
        if state == 'failed' then redis.call('HINCRBY', job_key(id), 'failures', 1) end
        finish(id, job, state, now, outcome)
        reply = 'OK'
      end
    elseif is_ours and job[1] == state then
      reply = 'ALREADY'
    elseif has_output then
      redis.call('UNLINK', output_key(id, attempt))
    end
    replies[#replies + 1] = reply
  end
  clear_finished()
  return replies
end
