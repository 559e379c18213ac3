-- Take back the jobs of one model whose lease ran out: their worker died or was cut off.
-- KEYS none.  ARGV now override, model, limit, most redeliveries, outcome for those that used them up, newest record
--   version we read
-- Replies {{requeued ids}, {failed ids}}. Entries that belong to no running job are dropped; to fail a job of a newer
-- version is left to those that read it.
-- uses: prelude load announce finish enter ready requeue

local now, model, most, outcome, version = now_ms(ARGV[1]), ARGV[2], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
local leased, requeued, failed = leased_key(model), {}, {}
even_when_full()
for _, id in ipairs(redis.call('ZRANGEBYSCORE', leased, '-inf', text(now), 'LIMIT', 0, ARGV[3])) do
  local job = record(id, 'state', 'model', 'attempt', 'keep_ms', 'record_ms', 'tenant', 'webhook',
    'redeliveries', 'score', 'v')
  if job[1] ~= 'in_progress' then
    redis.call('ZREM', leased, id)
  elseif (tonumber(job[8]) or most) < most and tonumber(job[9]) then
    requeue(id, model, now, 0, job[9])
    redis.call('HINCRBY', job_key(id), 'redeliveries', 1)
    requeued[#requeued + 1] = id
  elseif (tonumber(job[10]) or 0) <= version then
    finish(id, job, 'failed', now, outcome)
    failed[#failed + 1] = id
  end
end
clear_finished()
return {requeued, failed}
