-- Closes time slots that are rolled up for every resource: what is counted in them from now on comes late.
-- KEYS[1] remuda:metering:closed
-- KEYS[2..] remuda:metering:active:{service}:{resourcetype}:{timestamp}
-- ARGV[1] from, the time slot that the caller takes for the first that is not closed
-- ARGV[2] to, the first that is not closed afterwards
-- returns 1; 0 if some resource has to be rolled up, or another process was there before

if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] or redis.call('EXISTS', unpack(KEYS, 2)) > 0 then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2])
return 1
