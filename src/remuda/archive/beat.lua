-- A pipeline's beat for a job that it runs: counts the heartbeat, prolongs the lease, writes how far it has come.
-- KEYS[1] {ident}
-- KEYS[2] remuda:lease:{resource}
-- KEYS[3] remuda:run:{run}
-- KEYS[4] remuda:metering:timer:{timer}
-- ARGV[1] run, its number
-- ARGV[2] pipeline
-- ARGV[3] seconds of the lease
-- ARGV[4] job, fields as JSON
-- ARGV[5] record, fields of the run's record as JSON
-- returns the age of the settings, or -1 when the job is not this pipeline's any more

if not is_in(KEYS[1], ',running,', ARGV[1]) or not may_act(ARGV[2], KEYS[1], KEYS[2]) then
  return -1
end
redis.call('SET', KEYS[2], ARGV[2], 'EX', ARGV[3])
redis.call('HINCRBY', KEYS[1], 'heartbeat', 1)
redis.call('HSET', KEYS[1], 'ts', now)
-- What it has fetched since the last beat is metered, in this step, so that it is not lost, whatever is killed.
local FETCHED = {items_downloaded = 'fetch:pages', bytes_downloaded = 'fetch:incomingBytes'}
local progress = cjson.decode(ARGV[4])
local minute = time[1] - time[1] % 60
for field, amount in pairs(FETCHED) do
  -- Less than before if its frontier was lost and it began anew.
  local more = (tonumber(progress[field]) or 0) - (tonumber(redis.call('HGET', KEYS[1], field) or 0))
  if more > 0 and redis.call('EXISTS', KEYS[4]) == 1 then
    local total = redis.call('HINCRBY', KEYS[4], amount, string.format('%.0f', more))
    redis.call('HSET', KEYS[4], minute .. '000:' .. amount, total)
  end
end
for field, value in pairs(progress) do
  redis.call('HSET', KEYS[1], field, value)
end
for field, value in pairs(cjson.decode(ARGV[5])) do
  redis.call('HSET', KEYS[3], field, value)
end
return tonumber(redis.call('HGET', KEYS[1], 'settings_age')) or 0
