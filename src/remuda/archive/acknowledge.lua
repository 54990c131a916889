-- The liveness check of all jobs that run, as in the original: a heartbeat that has grown is acknowledged, one that has
-- not counts for the death timer.
-- KEYS[1] working
-- ARGV[1] most, so many jobs
-- ARGV[2] job, template by ident
-- ARGV[3] lease, template by ident
-- returns the idents whose lease is over

local over = {}
for _, ident in ipairs(redis.call('LRANGE', KEYS[1], 0, ARGV[1] - 1)) do
  local job = string.format(ARGV[2], ident)
  local state = state_of(job)
  if state ~= 'running' then
    -- One that is queued is just being started by a pipeline of other software, which takes two steps for it.
    if state ~= 'queued' then
      redis.call('LREM', KEYS[1], 0, ident)
    end
  else
    local known = redis.call('HMGET', job, 'heartbeat', 'last_acknowledged_heartbeat')
    local heartbeat, acknowledged = tonumber(known[1]) or 0, tonumber(known[2]) or -1
    if heartbeat > acknowledged then
      redis.call('HSET', job, 'last_acknowledged_heartbeat', heartbeat, 'death_timer', 0, 'ts', now)
    else
      redis.call('HINCRBY', job, 'death_timer', 1)
    end
    if redis.call('EXISTS', string.format(ARGV[3], ident)) == 0 then
      over[#over + 1] = ident
    end
  end
end
return over
