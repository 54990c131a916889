-- Reads new log entries of a job: analyses them, then broadcasts them, then trims what is far behind. So at any time
-- trimmed <= broadcasted <= analyzed, and no entry is counted twice, however many do this.
-- KEYS[1] {ident}
-- KEYS[2] {ident}_log
-- KEYS[3] remuda:metrics:archive
-- ARGV[1] most, so many entries
-- ARGV[2] keep, so many entries stay when the log is trimmed
-- ARGV[3] step, it is trimmed when so many entries can go
-- ARGV[4] lines, the channel for entries that are broadcasted
-- returns how many entries were read

local job, log = KEYS[1], KEYS[2]
if state_of(job) == '' then
  return 0
end
local marks = redis.call('HMGET', job, 'last_analyzed_log_entry', 'last_trimmed_log_entry')
local analyzed, trimmed = tonumber(marks[1]) or 0, tonumber(marks[2]) or 0
local found = redis.call('ZRANGE', log, '(' .. analyzed, '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[1], 'WITHSCORES')
if #found == 0 then
  return 0
end

local counts, responses, entries = {}, 0, {}
local function count(field)
  counts[field] = (counts[field] or 0) + 1
end
for index = 1, #found, 2 do
  entries[#entries + 1] = found[index]
  local is_json, entry = pcall(cjson.decode, found[index])
  if is_json and type(entry) == 'table' and entry.type == 'download' then
    responses = responses + 1
    local status = tonumber(entry.response_code) or 0
    local class = math.floor(status / 100)
    count(class >= 1 and class <= 5 and 'r' .. class .. 'xx' or 'runk')
    -- As documented: 4xx and 5xx. One without a status has failed, too.
    if class == 4 or class == 5 or (class == 0 and entry.is_error) then
      count('error_count')
    end
  end
end
for field, number in pairs(counts) do
  redis.call('HINCRBY', job, field, number)
end
redis.call('HINCRBY', KEYS[3], 'responses', responses)
redis.call('HINCRBY', KEYS[3], 'errors', counts.error_count or 0)
analyzed = tonumber(found[#found])
redis.call('PUBLISH', ARGV[4], '[' .. table.concat(entries, ',') .. ']')
redis.call('HSET', job, 'last_analyzed_log_entry', analyzed, 'last_broadcasted_log_entry', analyzed, 'ts', now)

local behind = analyzed - tonumber(ARGV[2])
if behind - trimmed >= tonumber(ARGV[3]) then
  redis.call('ZREMRANGEBYSCORE', log, '-inf', behind)
  redis.call('HSET', job, 'last_trimmed_log_entry', behind)
end
return #entries
