-- Ends the run of a job: counts it, tells of it, and lets the job's hash, log and ignores linger. The run's record stays.
-- KEYS[1] {ident}
-- KEYS[2] remuda:lease:{resource}
-- KEYS[3] remuda:run:{run}
-- KEYS[4] {queue}
-- KEYS[5] working
-- KEYS[6] {ident}_ignores
-- KEYS[7] {ident}_log
-- KEYS[8] {counter}, of jobs that ended so
-- KEYS[9] finish_notifications
-- KEYS[10] remuda:jobs:open:{account}
-- KEYS[11] remuda:metering:timer:{timer}
-- KEYS[12] remuda:metering:timers
-- KEYS[13] remuda:credentials:{ident}
-- ARGV[1] ident
-- ARGV[2] run, its number
-- ARGV[3] origins, legal states to come from, each between commas
-- ARGV[4] asker, the job's pipeline, * for the herd, or '' if the lease has to be over
-- ARGV[5] state to move to
-- ARGV[6] record, fields of the run's record as JSON
-- ARGV[7] notification, as JSON
-- ARGV[8] keep, so many notifications
-- ARGV[9] lingers, seconds
-- ARGV[10] updates, the channel
-- ARGV[11] settings, the job's channel for them
-- returns 1, or 0 when that was not possible

local job, state = KEYS[1], ARGV[5]
if not is_in(job, ARGV[3], ARGV[2]) or not may_act(ARGV[4], job, KEYS[2]) then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[13])
redis.call('LREM', KEYS[4], 0, ARGV[1])
redis.call('LREM', KEYS[5], 0, ARGV[1])
redis.call('SREM', KEYS[10], ARGV[1])
redis.call('HSET', job, 'finished_at', now)
if state ~= 'completed' then
  redis.call('HSET', job, state, 'true')
end
redis.call('HSET', KEYS[3], 'state', state, 'finishedAt', now)
for field, value in pairs(cjson.decode(ARGV[6])) do
  redis.call('HSET', KEYS[3], field, value)
end
redis.call('HDEL', KEYS[3], 'current', 'hostUntil')
-- Its time is metered until now.
if redis.call('EXISTS', KEYS[11]) == 1 then
  local ended = string.format('%.0f', tonumber(now) * 1000)
  redis.call('HSET', KEYS[11], 'ended', ended)
  redis.call('ZADD', KEYS[12], ended, ARGV[1] .. '-' .. ARGV[2])
end
redis.call('INCR', KEYS[8])
redis.call('RPUSH', KEYS[9], ARGV[7])
redis.call('LTRIM', KEYS[9], -tonumber(ARGV[8]), -1)
for _, key in ipairs({job, KEYS[6], KEYS[7]}) do
  redis.call('EXPIRE', key, ARGV[9])
end
redis.call('PUBLISH', ARGV[10], ARGV[1])
-- Whoever runs it although it has ended stops at once. No setting has changed, so the age stays.
redis.call('PUBLISH', ARGV[11], redis.call('HGET', job, 'settings_age') or 0)
return 1
