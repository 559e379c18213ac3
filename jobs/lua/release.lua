-- Give a block of running attempts back to the queue at their old place; no failure is counted.
-- KEYS none.  ARGV now override; then per job: id, attempt, delay ms, 1 to count a redelivery (else 0)
-- Replies one word per job: OK; LEASE_LOST (nothing changed).
-- uses: prelude enter ready requeue

local now, replies = now_ms(ARGV[1]), {}
even_when_full()
for i = 2, #ARGV, 4 do
  local id, attempt, delay_ms, is_loss = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3] == '1'
  local job = record(id, 'state', 'attempt', 'model', 'score')
  local is_ours = job[1] == 'in_progress' and job[2] == attempt
  if is_ours then
    requeue(id, job[3], now, delay_ms, job[4])
    if is_loss then redis.call('HINCRBY', job_key(id), 'redeliveries', 1) end
  end
  replies[#replies + 1] = is_ours and 'OK' or 'LEASE_LOST'
end
return replies
