-- Puts a job that runs back into its queue, as the next to be taken: its pipeline leaves, or has died.
-- KEYS[1] {ident}
-- KEYS[2] remuda:lease:{resource}
-- KEYS[3] remuda:run:{run}
-- KEYS[4] {queue}
-- KEYS[5] working
-- KEYS[6] remuda:metrics:archive
-- KEYS[7] remuda:jobs:tags
-- ARGV[1] ident
-- ARGV[2] run, its number
-- ARGV[3] origins, legal states to come from, each between commas
-- ARGV[4] asker, the job's pipeline, * for the herd, or '' if the lease has to be over
-- ARGV[5] deaths to count: 1 if its pipeline has died, else 0
-- ARGV[6] grace, seconds for which only the machine that has its frontier may take it
-- ARGV[7] tag of the pipelines that may take it; '' for any
-- ARGV[8] bell to ring
-- returns 1, or 0 when that was not possible

if not is_in(KEYS[1], ARGV[3], ARGV[2]) or not may_act(ARGV[4], KEYS[1], KEYS[2]) then
  return 0
end
redis.call('DEL', KEYS[2])
redis.call('LREM', KEYS[5], 0, ARGV[1])
redis.call('HDEL', KEYS[1], 'started_at', 'pipeline_id', 'heartbeat', 'last_acknowledged_heartbeat', 'death_timer')
redis.call('HSET', KEYS[3], 'state', 'queued', 'hostUntil', string.format('%.6f', tonumber(now) + ARGV[6]))
redis.call('HINCRBY', KEYS[3], 'deaths', ARGV[5])
redis.call('HINCRBY', KEYS[6], 'deaths', ARGV[5])
redis.call('RPUSH', KEYS[4], ARGV[1])
-- While the job ran, its queue may have been empty, and the tag forgotten.
if ARGV[7] ~= '' then
  redis.call('SADD', KEYS[7], ARGV[7])
end
redis.call('PUBLISH', ARGV[8], '')
return 1
