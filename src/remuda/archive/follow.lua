-- Brings the record of a run in line with its job, which other software may have started, ended or deleted.
-- KEYS[1] {ident}
-- KEYS[2] remuda:run:{run}
-- KEYS[3] remuda:jobs:open:{account}
-- KEYS[4] remuda:metering:timer:{timer}
-- KEYS[5] remuda:metering:timers
-- KEYS[6] remuda:credentials:{ident}
-- ARGV[1] ident
-- ARGV[2] run, its number
-- ARGV[3] ends, states in which a job has ended, each between commas
-- ARGV[4] lost, the reason that is written down for a job that was deleted
-- returns 1 if there was a difference, else 0

local job, record = KEYS[1], KEYS[2]
local before = redis.call('HGET', record, 'state')
if not before or ARGV[3]:find(',' .. before .. ',', 1, true) then
  return 0
end
local is_lost = state_of(job) == '' or redis.call('HGET', job, 'run') ~= ARGV[2]
local state = is_lost and 'failed' or state_of(job)
if state == before then
  return 0
end
redis.call('HSET', record, 'state', state)
if state == 'running' then
  -- Its pipeline is not written down: those in records have leases.
  redis.call('HSETNX', record, 'startedAt', redis.call('HGET', job, 'started_at'))
elseif state ~= 'queued' then
  redis.call('HSET', record, 'finishedAt', not is_lost and redis.call('HGET', job, 'finished_at') or now)
  if is_lost then
    redis.call('HSET', record, 'reason', ARGV[4])
  end
  redis.call('HDEL', record, 'current', 'hostUntil')
  redis.call('SREM', KEYS[3], ARGV[1])
  local newest = redis.call('HGET', job, 'run')
  if not newest or newest == ARGV[2] then -- Else they are those of a later run.
    redis.call('DEL', KEYS[6])
  end
  if redis.call('EXISTS', KEYS[4]) == 1 then
    local ended = string.format('%.0f', tonumber(now) * 1000)
    redis.call('HSET', KEYS[4], 'ended', ended)
    redis.call('ZADD', KEYS[5], ended, ARGV[1] .. '-' .. ARGV[2])
  end
end
return 1
